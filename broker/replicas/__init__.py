"""The replicas of a broker: their roles, leaders and followers, and the requests that wait for them."""
