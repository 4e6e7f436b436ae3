"""Makes points for the model of step time from recordings, fits the model and predicts with it.

`part` reads the steps of one recording, `points` puts recordings and runs together, `fit` fits the model to them, `predict` applies it.
"""
