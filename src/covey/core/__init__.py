"""The round: messages, what parts need and give, costs, checks of replies, bytes."""
