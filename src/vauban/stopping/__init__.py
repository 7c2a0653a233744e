"""When to stop casting votes: policies and the sequential tests behind them, for every sampled law; no torch."""

from vauban.stopping.anytime import Anytime, AnytimeRule
from vauban.stopping.fixed import Fixed, FixedRule
from vauban.stopping.policies import POLICIES, Decision, Grid, GridRule, Policy, Rule, Target, policy

__all__ = [
    "POLICIES",
    "Anytime",
    "AnytimeRule",
    "Decision",
    "Fixed",
    "FixedRule",
    "Grid",
    "GridRule",
    "Policy",
    "Rule",
    "Target",
    "policy",
]
