"""What a worker of Django's tasks loads: `jackalope.contrib.django.worker:app`."""

import os

import django
from django.apps import apps

from jackalope.contrib.django.api import task_backends

#: The variable that names the backend.
BACKEND_VARIABLE = "JACKALOPE_DJANGO_BACKEND"

if not apps.ready:
    django.setup()

app = task_backends[os.environ.get(BACKEND_VARIABLE, "default")].app
