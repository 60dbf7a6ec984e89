"""From evidence to a verdict: facts, detectors, and the judge that weighs what they find."""
