"""What everything else speaks of: objects, queries, regions, terms, results, and their wire schemas."""
