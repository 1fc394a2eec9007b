"""The warm process: it holds a judge ready, so that nobody who asks pays for starting one."""
