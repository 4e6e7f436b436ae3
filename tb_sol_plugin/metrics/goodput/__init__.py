"""Points for the model of step time: times of steps and of gradient reduction, and batch sizes, from recordings.

`part` reads the steps of one recording, `points` puts recordings and runs together, `fit` fits the model to them, `predict` applies it.
"""
