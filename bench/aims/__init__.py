"""Every aim of the speed, measured in one run."""
