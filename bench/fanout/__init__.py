"""Fan-outs of Jackalope beside pools of processes, Dask and Ray, in one run on one machine."""
