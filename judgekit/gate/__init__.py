"""The gate's flow: what a push changes is judged before it leaves."""
