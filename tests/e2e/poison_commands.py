"""What the tests of vauban poison share: a tiny learner, and inputs."""

TINY = "tiny-cnn:steps=6,group=5,views=1,batch=16"

PLAIN = "partition:spread=1,threat=samples"

TEST = ["--data", "mnist:split=test", "--limit", "40", "--device", "cpu"]
