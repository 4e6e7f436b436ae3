"""LAYER 5: Flask app, routes, wire formats, OpenAPI, the WSGI mount."""
