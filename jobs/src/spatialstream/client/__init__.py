"""What a user of a running stream does: send records, follow results, have each row once and whole."""
