"""Transport: uvicorn inside the broker's loop, with limits."""
