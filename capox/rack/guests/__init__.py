"""What runs inside the rack's instances: nothing, or machines that boot an image and their user data.

`interface` is all that the rack knows of them. `nothing` is the default; `docker` makes a container of each instance.
What is computed (`wiring`, `firewall`, `netfilter`, `seed`, `container`) is apart from what is done (`docker_cli`,
`fabric`, `machine`, `docker`, `host`).
"""
