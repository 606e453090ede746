"""The data model: objects, queries, regions, terms, times, and their wire schemas."""
