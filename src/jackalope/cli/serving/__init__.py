"""Running a broker: opens storage and doors, declares what is configured."""
