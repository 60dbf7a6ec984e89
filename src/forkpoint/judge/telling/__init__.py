"""The words of a verdict: headlines, the phrases that they share, and the timeline."""
