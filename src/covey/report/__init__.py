"""What a run left behind, shown: terminal tables, figures and one self-contained page."""
