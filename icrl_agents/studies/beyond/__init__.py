"""Beyond MetaWorld: the frozen evaluators of the transfer study on classic control and on random chains."""
