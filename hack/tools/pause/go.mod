// The container that holds a Pod's namespaces open on the machines of the node image.
module capox.invalid/hack/tools/pause

go 1.26.0
