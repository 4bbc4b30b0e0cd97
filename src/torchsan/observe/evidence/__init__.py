"""From facts about holders to events: each module collects the evidence for one kind of hazard."""
