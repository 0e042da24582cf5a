"""Workers: how they join, fall silent and come back, and how they help each other."""
