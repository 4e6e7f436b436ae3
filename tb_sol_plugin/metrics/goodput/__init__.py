"""Points for the model of step time: what recordings say of steps, of the reduction of gradients, and of batch sizes.

`steps` are the steps of one worker's trace, `part` is what one worker brings, `points` puts workers and runs together.
"""
