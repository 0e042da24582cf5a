"""A web application in front of a broker, with FastAPI.

jackalope serve
jackalope worker examples.web.tasks:app
uvicorn examples.web.api:api
"""
