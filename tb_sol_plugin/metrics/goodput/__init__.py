"""Points for the model of step time: times of steps and of gradient reduction, and batch sizes, from recordings.

`steps` are the steps of one worker's trace, `part` is what one worker brings, `points` puts workers and runs together.
"""
