"""Figures for operators: collected from servers and this gateway, exported over HTTP."""
