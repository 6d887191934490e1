"""How good the planner's choices are: fitted on few points, judged on all that was measured."""
