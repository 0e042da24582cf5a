"""A large picture, rendered tile by tile by workers, one of which is killed on the way."""
