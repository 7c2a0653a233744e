"""Networks of several agents as one network with stacked weights."""
