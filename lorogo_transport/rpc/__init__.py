"""Calls and services over any bus: both ends of a call, reply rules, and discovery of servers."""
