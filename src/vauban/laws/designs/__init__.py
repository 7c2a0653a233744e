"""Lists of views for metrics that add up a concave function of every change: solved as integer programs."""
