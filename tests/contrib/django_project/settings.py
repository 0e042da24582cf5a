"""The settings: database and broker are the test's."""

import os

from jackalope.contrib.django.api import PACKAGE

SECRET_KEY = "test"  # noqa: S105
USE_TZ = True
_KIND, _, _WHERE = os.environ["TEST_DATABASE"].partition("=")
DATABASES = {
    "default": {"ENGINE": "django.db.backends.sqlite3", "NAME": _WHERE, "OPTIONS": {"timeout": 30}}
    if _KIND == "sqlite"
    else {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": "postgres",
        "USER": "postgres",
        "HOST": "127.0.0.1",
        "PORT": _WHERE,
    }
}
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    *(["django_tasks"] if PACKAGE == "django_tasks" else []),
    "jackalope.contrib.django",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
ROOT_URLCONF = "tests.contrib.django_project.urls"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
_OPTIONS = {"ADDRESS": os.environ["TEST_BROKER"]}
_BACKEND = "jackalope.contrib.django.backend.JackalopeBackend"
TASKS = {
    "default": {"BACKEND": _BACKEND, "QUEUES": ["default", "mail"], "OPTIONS": _OPTIONS},
    "retried": {"BACKEND": _BACKEND, "OPTIONS": {**_OPTIONS, "RETRIES": 2}},
    "outbox": {
        "BACKEND": _BACKEND,
        "QUEUES": ["default"],
        "OPTIONS": {**_OPTIONS, "OUTBOX": "default"},
    },
}
