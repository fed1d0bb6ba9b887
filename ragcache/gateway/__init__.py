"""The gateway: an OpenAI-compatible HTTP server in front of the pipeline, for every other client.

    body -> credential -> limits -> request -> pipeline -> OpenAI-shaped reply

Everything that decides is the pipeline's; here HTTP becomes a request, and an answer HTTP.
"""
