"""Serves HTTP: Flask app, routes, wire formats, OpenAPI, the WSGI mount."""
