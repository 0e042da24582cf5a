"""Single flight and cached answers: one run for equal requests."""
