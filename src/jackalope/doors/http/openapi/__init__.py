"""OpenAPI: the description of the API, generated from its schemas."""
