"""Many images: a list of them, a job for each, and engines that run it.

A job is a function from an item of the list to a temporary file. The process that runs the batch alone puts
files in place and keeps the journal, so that every engine resumes alike and writes the same bytes.
"""
