"""MetaWorld's 50 manipulation domains as Gymnasium environments; the simulator is imported when one is made."""
