"""Batches of images: a list of items, a job per item, and engines that run the jobs.

A job writes its output to a temporary file. Only the process that runs the batch renames files and writes the
journal, so that every engine resumes in the same way and writes the same bytes.
"""
