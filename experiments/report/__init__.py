"""Figures and HTML pages: of one run, of a sweep, of a paper's table or figure."""
