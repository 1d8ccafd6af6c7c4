"""Collection from the command line: any Gymnasium id under a policy, into an npz file or a Minari dataset."""
