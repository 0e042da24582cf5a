"""Configuration: schema, sources, loading, and where a broker may listen."""
