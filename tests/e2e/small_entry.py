"""A small experiment for vauban reproduce: two trainings of a second, four digits, 200 votes."""

ENTRY = """
title = "Small"
source = "a test"
data = "mnist"
smoothing = "gaussian:sigma={sigma}"

[grid]
sigma = [0.5, 0.25]

[train]
model = "mlp:width=16,depth=1"
limit = 300
settings = { epochs = 2, batch = 50 }

[certify]
inputs = "1::2500"
n = 200
alpha = 0.05
label = "given"

[[published]]
source = "table 1"
what = "certified"
over = "radius"
x = [0.0, 0.1]
y = [50.0, 40.0]
inputs = 4

[[published]]
source = "table 2"
what = "clean"
over = "sigma"
x = [0.25, 0.5]
y = [60.0, 50.0]
"""
