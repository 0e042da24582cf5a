"""For AiiDA and plumpy: Jackalope in the place of RabbitMQ. Needs `jackalope[kiwipy]`."""
