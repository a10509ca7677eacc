"""The methods: a folder per paper, a file per other method; each is a short function that composes parts."""
