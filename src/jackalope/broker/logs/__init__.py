"""Task logs in a broker: what attempts have printed and logged is checked, stored and read."""
