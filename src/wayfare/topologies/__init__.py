"""Who talks to whom: a server and its clients, or two tiers of servers. Devices that meet: `wayfare.encounters`."""
