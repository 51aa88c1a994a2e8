"""The models that Keras users have: rebuilt after keras.io's examples, KerasHub's and keras.applications, with made-up data.

`catalogue.py` says what a model of the suite is; the modules beside it hold the models, by kind; `measure.py` trains one of them
by plain Keras and by tfdp; `__main__.py` runs them all, each in processes of its own; `page.py` writes docs/models.md.
"""
