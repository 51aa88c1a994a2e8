"""What `train.py` does: single runs, sweeps, the papers' tables and figures, and reports of them.

tasks       data sets with their networks and usual settings        methods     the ways of training, by name
settings    one run as plain data, checked                          training    one run, from settings to its folder
run_folder  what a run leaves                                       campaign    many runs, resumable, a JSON line each
folder_lock one process at a time in a folder                       arguments   what each command takes
sweep       a grid of settings                                      papers/     the papers' tables and figures
report/     figures and HTML pages                                  commands    the command line
"""
