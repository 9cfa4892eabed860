"""What the analysing verbs answer: one module a verb, each a function from runs to an Answer."""
