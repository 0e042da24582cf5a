"""Blob stores: a folder, or S3-compatible storage."""
