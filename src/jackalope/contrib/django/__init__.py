"""For Django: a backend of `django.tasks`, and of its backport `django-tasks`.

    TASKS = {
        "default": {
            "BACKEND": "jackalope.contrib.django.backend.JackalopeBackend",
            "OPTIONS": {"ADDRESS": "jackalope://localhost:7420"},
        }
    }

With `jackalope.contrib.django` among `INSTALLED_APPS` there are `manage.py jackalope_worker`,
`manage.py jackalope_relay`, and the table of the outbox.
"""
